"""Tables in Arrow's format, wherever they lie: read in bounded memory and in an order that workers agree on."""
