"""The dashboard: pairs, backlogs, drains, money and embedded namespaces on one page, live.

It reads what everybody may read: status files of clients, the control addresses of broker and syphon, closed
and open segments of records, and the namespaces themselves through their own protocols. It opens no database
file, needs no Spark, and changes nothing unless it is told to (`controls`).
"""
