"""Charts and tables for our pages: SVG and HTML as text, no script, no library. Colours are the page's."""
