"""The SparkApplication, and the pods that Spark makes for one."""
