"""Creates the SQLite database that Datasette publishes."""

import sqlite3
import sys

with sqlite3.connect(sys.argv[1]) as db:
    db.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT, status TEXT, cents INTEGER)")
    db.executemany(
        "INSERT INTO orders VALUES (?, ?, ?, ?)",
        ((i, f"customer {i % 200}", ("open", "paid", "sent")[i % 3], 100 * (i % 90)) for i in range(1, 3001)),
    )
