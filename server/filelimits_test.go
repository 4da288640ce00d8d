package server

import (
	"log/slog"
	"math"
	"net/http"
	"testing"

	"google.golang.org/grpc"

	"github.com/sibyl-trace/sibyl/internal/connlimit"
)

// Whatever a process may open, there is something for everybody, nothing is given twice, and ten thousand agents fit where 20 000 files are allowed.
func TestShareFiles(t *testing.T) {
	for _, all := range []uint64{256, 400, 1024, 4096, 20_000, 65_536, 1 << 30, math.MaxUint64} {
		f := shareFiles(all)
		sum := 2*f.database + f.agents + otherAddresses*f.others
		if f.agents < f.others || f.others < 1 || f.database < 0 || uint64(sum) > all || all < 20_000 && uint64(sum+needed) < all-2 {
			t.Errorf("%d files: %+v, together %d", all, f, sum)
		}
		if all >= 20_000 && (f.agents < 11_000 || f.agents > mostAgents || f.others != mostOthers) {
			t.Errorf("%d files: %+v", all, f)
		}
	}
}

// A door that is closed before it is served was served as long as it should be.
func TestDrainBeforeServe(t *testing.T) {
	f := frame{what: "nobody", address: "127.0.0.1:0", share: connlimit.NewShare(1, slog.New(slog.DiscardHandler)), log: slog.New(slog.DiscardHandler)}
	rpc, err := openGRPC(t.Context(), f, grpc.NewServer)
	if err != nil {
		t.Fatal(err)
	}
	web, err := openHTTP(t.Context(), f, new(http.Server))
	if err != nil {
		t.Fatal(err)
	}
	for name, d := range map[string]*door{"gRPC": rpc, "HTTP": web} {
		if err := d.drain(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := d.serve(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
