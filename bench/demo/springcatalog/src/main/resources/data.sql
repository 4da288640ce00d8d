INSERT INTO categories SELECT X, 'category ' || X, CASE WHEN X = 0 THEN NULL ELSE X / 2 END FROM SYSTEM_RANGE(0, 31);
INSERT INTO products SELECT X, MOD(X, 32), 'product ' || X,
  REPEAT('A *sturdy* and elegant thing with a handle of oak, for garden & kitchen. ', 6), 500 + MOD(X * 7919, 20000) FROM SYSTEM_RANGE(0, 1999);
INSERT INTO attributes SELECT X / 6, 'attribute ' || MOD(X, 6), 'value ' || MOD(X * 31, 97) FROM SYSTEM_RANGE(0, 11999);
INSERT INTO variants SELECT X / 4, 'size ' || MOD(X, 4), 'colour ' || MOD(X, 11), MOD(X * 17, 50) FROM SYSTEM_RANGE(0, 7999);
INSERT INTO sellers SELECT X, 'seller ' || X, CASE MOD(X, 3) WHEN 0 THEN 'DE' WHEN 1 THEN 'US' ELSE 'JP' END, 1 + MOD(X, 5) FROM SYSTEM_RANGE(0, 99);
INSERT INTO offers SELECT X, X / 12, MOD(X * 13, 100), 450 + MOD(X * 7907, 20000), MOD(X, 9) FROM SYSTEM_RANGE(0, 23999);
INSERT INTO price_history SELECT MOD(X, 2000), X / 2000, 500 + MOD(X * 104729, 20000) FROM SYSTEM_RANGE(0, 199999);
CREATE INDEX products_category ON products (category);
CREATE INDEX attributes_product ON attributes (product);
CREATE INDEX variants_product ON variants (product);
CREATE INDEX offers_product ON offers (product);
CREATE INDEX offers_seller ON offers (seller);
CREATE INDEX price_history_product ON price_history (product);
