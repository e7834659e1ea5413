"""The real code in one thread, on a virtual clock, from one seed. See docs/how-we-know.md."""
