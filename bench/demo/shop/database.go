package shop

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"path/filepath"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	_ "modernc.org/sqlite" // the driver "sqlite"
)

// connections is the size of a connection pool that is large enough.
const connections = 16

// Initial rows of tables.
const (
	fewRows  = 5_000
	manyRows = 150_000 // enough for a missing index to matter
)

// openDatabase creates and opens the database of the service. Each table has the given number of rows.
func (s *service) openDatabase(ctx context.Context, rows int, tables ...string) error {
	file := url.URL{Scheme: "file", Path: filepath.Join(s.dir, fmt.Sprintf("%s-%d.db", s.name, s.instance))}
	file.RawQuery = "_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=busy_timeout(10000)"
	db, err := sql.Open("sqlite", file.String())
	if err != nil {
		return fmt.Errorf("open the database of %s: %w", s.name, err)
	}
	db.SetMaxOpenConns(connections)
	db.SetMaxIdleConns(connections)
	s.db = db
	for _, table := range tables {
		if err := s.fill(ctx, rows, table); err != nil {
			return fmt.Errorf("fill the table %s of %s: %w", table, s.name, err)
		}
	}
	return nil
}

// fill creates a table with its rows and its index.
func (s *service) fill(ctx context.Context, rows int, table string) error {
	for _, statement := range []string{
		`CREATE TABLE ` + table +
			` (id INTEGER PRIMARY KEY, item INTEGER NOT NULL, amount INTEGER NOT NULL, text TEXT NOT NULL)`,
		fmt.Sprintf(`WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < %d)
			INSERT INTO %s (item, amount, text)
			SELECT i %% %d, i * 7919 %% 10007, 'product ' || i || ' of the shop' FROM n`, rows, table, Products),
		`CREATE INDEX ` + table + `_item ON ` + table + ` (item)`,
	} {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// dropIndex drops the index of a table, so that queries scan the table.
func (s *service) dropIndex(ctx context.Context, table string) error {
	if _, err := s.db.ExecContext(ctx, `DROP INDEX IF EXISTS `+table+`_item`); err != nil {
		return fmt.Errorf("drop the index of %s: %w", table, err)
	}
	return nil
}

// connected returns a step that executes acquire and then, holding the acquired connection, steps.
func (s *service) connected(acquire step, steps ...step) step {
	body := all(steps)
	return step{inside: append(acquire.inside, body.inside...), do: func(c *call) (err error) {
		if err := acquire.do(c); err != nil {
			return err
		}
		defer func() {
			if e := c.conn.Close(); err == nil && e != nil {
				err = fmt.Errorf("return a connection: %w", e)
			}
			c.conn = nil
		}()
		return body.do(c)
	}}
}

// acquires returns a function that waits for a connection of the pool.
func (s *service) acquires(name string) step {
	return s.leaf(name, func(c *call) error {
		held, err := s.db.Conn(c.ctx)
		if err != nil {
			return fmt.Errorf("wait for a connection: %w", err)
		}
		c.conn = held
		return nil
	})
}

// selects returns a function that reads the rows of the request's products.
func (s *service) selects(name, table string) step {
	query := `SELECT sum(amount), max(text) FROM ` + table + ` WHERE item = ?`
	traced := s.traced("SELECT", table)
	return s.leaf(name, func(c *call) error {
		for _, item := range c.request.Items {
			var sum sql.NullInt64
			var text sql.NullString
			err := traced(c, func(ctx context.Context) error {
				return s.database(c).QueryRowContext(ctx, query, item).Scan(&sum, &text)
			})
			if err != nil {
				return fmt.Errorf("select from %s: %w", table, err)
			}
		}
		return nil
	})
}

// inserts returns a function that writes a row durably.
func (s *service) inserts(name, table string) step {
	statement := `INSERT OR REPLACE INTO ` + table + ` (id, item, amount, text) VALUES (?, ?, 1, 'ordered')`
	traced := s.traced("INSERT", table)
	return s.leaf(name, func(c *call) error {
		id := fewRows + c.request.Seed%fewRows // replaces rows, to bound the size of the table
		err := traced(c, func(ctx context.Context) error {
			_, err := s.database(c).ExecContext(ctx, statement, id, c.request.Items[0])
			return err
		})
		if err != nil {
			return fmt.Errorf("insert into %s: %w", table, err)
		}
		return nil
	})
}

// traced returns a function that executes a statement with a CLIENT span around it. As in common instrumentations of
// databases, the span is named after the operation, and attributes name the table.
func (s *service) traced(operation, table string) func(c *call, statement func(context.Context) error) error {
	called := s.callFlag(operation)
	attributes := trace.WithAttributes(
		attribute.String("db.system.name", "sqlite"), attribute.String("db.namespace", s.name),
		attribute.String("db.collection.name", table), attribute.String("db.operation.name", operation))
	return func(c *call, statement func(context.Context) error) error {
		called.Store(true)
		ctx, span := s.provider.Tracer("shop/database").Start(c.ctx, operation,
			trace.WithSpanKind(trace.SpanKindClient), attributes)
		defer span.End()
		err := statement(ctx)
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		return err
	}
}

// database is a pool or a connection.
type database interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// database returns the connection that a call holds, or else the pool.
func (s *service) database(c *call) database {
	if c.conn != nil {
		return c.conn
	}
	return s.db
}
