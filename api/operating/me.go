package operating

import (
	"context"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
)

// GetMe implements contract.StrictServerInterface.
func (a *Operating) GetMe(ctx context.Context, _ contract.GetMeRequestObject) (contract.GetMeResponseObject, error) {
	who := access.Caller(ctx)
	caller := contract.GetMe200JSONResponse{
		Name: who.Name,
		Role: contract.CallerRole(who.Role),
		Via:  contract.CallerVia(who.Via),
	}
	if who.Subject != "" {
		caller.Subject = &who.Subject
	}
	for _, t := range a.tenants() {
		name := t.Name
		if name == access.DefaultTenant {
			name = ""
		}
		if who.Tenants.Enters(name, who.Role) {
			caller.Tenants = append(caller.Tenants, contract.TenantPath{Name: t.Name, Path: t.Path})
		}
	}
	if len(caller.Tenants) < 2 { // nothing to choose from
		caller.Tenants = nil
	}
	return caller, nil
}
