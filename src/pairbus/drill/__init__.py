"""The drill: an outage on two embedded namespaces, from the first fault to the verdict and the bill."""
