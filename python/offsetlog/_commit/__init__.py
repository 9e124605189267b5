"""A write of several partitions that counts as a whole, once, whatever fails or dies in between. Kafka has transactions for this.

``notes`` are the files that say what a commit is about to do, ``staging`` holds records that are written aside until then, ``places``
knows where they go, ``moving`` publishes those of one partition, ``publishing`` all of them. Spark's sink calls this; nothing here
knows Spark.
"""
