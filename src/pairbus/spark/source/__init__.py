"""`spark.read.format("servicebus")`, `readStream`, `write` and `writeStream`: Service Bus for Spark."""
