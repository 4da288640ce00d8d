CREATE TABLE customers (id serial PRIMARY KEY, name text NOT NULL, city text NOT NULL);
CREATE TABLE orders (id serial PRIMARY KEY, customer_id integer NOT NULL REFERENCES customers, status text NOT NULL, cents integer NOT NULL);
INSERT INTO customers (name, city) SELECT 'customer ' || i, 'city ' || i % 20 FROM generate_series(1, 200) i;
INSERT INTO orders (customer_id, status, cents) SELECT 1 + i % 200, (ARRAY['open', 'paid', 'sent'])[1 + i % 3], 100 * (i % 90) FROM generate_series(1, 3000) i;
CREATE INDEX ON orders (customer_id);
