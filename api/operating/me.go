package operating

import (
	"context"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
)

// GetMe implements contract.StrictServerInterface.
func (*Operating) GetMe(ctx context.Context, _ contract.GetMeRequestObject) (contract.GetMeResponseObject, error) {
	who := access.Caller(ctx)
	caller := contract.GetMe200JSONResponse{
		Name: who.Name,
		Role: contract.CallerRole(who.Role),
		Via:  contract.CallerVia(who.Via),
	}
	if who.Subject != "" {
		caller.Subject = &who.Subject
	}
	return caller, nil
}
