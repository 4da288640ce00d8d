package integration_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/XSAM/otelsql"
)

// database is a driver whose queries return no rows.
type database struct{}

func (database) Open(string) (driver.Conn, error) { return database{}, nil }

func (database) QueryContext(context.Context, string, []driver.NamedValue) (driver.Rows, error) {
	return database{}, nil
}
func (database) Prepare(string) (driver.Stmt, error) { return nil, driver.ErrSkip }
func (database) Begin() (driver.Tx, error)           { return nil, driver.ErrSkip }
func (database) Columns() []string                   { return []string{"price"} }
func (database) Next([]driver.Value) error           { return io.EOF }
func (database) Close() error                        { return nil }

// TestSQL checks the spans of otelsql.
func TestSQL(t *testing.T) {
	shop := newService("shop")
	db := open(t, shop)
	defer func() { _ = db.Close() }()
	request := func() {
		ctx, entry := shop.provider.Tracer("entry").Start(t.Context(), "GET /")
		rows, err := db.QueryContext(ctx, "SELECT price FROM items")
		if err != nil {
			t.Fatal(err)
		}
		defer entry.End()
		defer func() { _ = rows.Close() }()
		if rows.Next() || rows.Err() != nil {
			t.Error("the query returned rows")
		}
	}

	request()
	shop.expect(t, `
		GET / kind=internal plan=0
		`, "kind")

	isQuery := func(id string) bool { return strings.HasSuffix(id, "/sql.conn.query") }
	query := shop.ids()[slices.IndexFunc(shop.ids(), isQuery)]
	shop.apply(t, planOf(1, query))
	request()
	shop.expect(t, `
		GET / arm=a kind=internal plan=1
		  sql.conn.query kind=client tp=shop/github.com/XSAM/otelsql/sql.conn.query
		`, "kind")
}

func open(t *testing.T, s *service) *sql.DB {
	t.Helper()
	name := "none-" + t.Name()
	sql.Register(name, otelsql.WrapDriver(database{}, otelsql.WithTracerProvider(s.provider)))
	db, err := sql.Open(name, "")
	if err != nil {
		t.Fatal(err)
	}
	return db
}
