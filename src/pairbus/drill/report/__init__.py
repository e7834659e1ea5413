"""What is shown of a drill: on a terminal while it runs, and on a page when it is over."""
