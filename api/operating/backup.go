package operating

import (
	"context"
	"log/slog"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// BackUp implements contract.StrictServerInterface.
func (a *Operating) BackUp(ctx context.Context, _ contract.BackUpRequestObject) (contract.BackUpResponseObject, error) {
	if a.options.Backup == nil {
		return nil, refusal.New(refusal.NotFound, "this service has no data to back up", "")
	}
	dir, err := a.options.Backup()
	if err != nil {
		return nil, err
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "the data was backed up",
		slog.String("directory", dir), slog.String("by", access.Caller(ctx).Name))
	return contract.BackUp200JSONResponse{Directory: dir}, nil
}
