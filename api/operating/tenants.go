package operating

import (
	"context"
	"log/slog"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// tenants returns all tenants of the process.
func (a *Operating) tenants() []contract.Tenant {
	if a.options.Tenants == nil {
		return nil
	}
	return a.options.Tenants.Tenants()
}

// errProcess is the refusal for callers who may not manage the tenants of the process.
var errProcess = refusal.New(refusal.Forbidden, "this needs an admin of the whole process, at the default tenant",
	"use a token of the role admin without a tenant, and an address without /t/…")

// mayManage returns a refusal unless the caller of ctx may manage tenants: an admin who may enter every tenant.
func (a *Operating) mayManage(ctx context.Context) error {
	if a.options.Tenants == nil || a.options.Tenant != "" || access.Caller(ctx).Tenants != "" {
		return errProcess
	}
	return nil
}

// ListTenants implements contract.StrictServerInterface.
func (a *Operating) ListTenants(
	ctx context.Context, _ contract.ListTenantsRequestObject,
) (contract.ListTenantsResponseObject, error) {
	if err := a.mayManage(ctx); err != nil {
		return nil, err
	}
	return contract.ListTenants200JSONResponse{Items: a.tenants()}, nil
}

// CreateTenant implements contract.StrictServerInterface.
func (a *Operating) CreateTenant(
	ctx context.Context, r contract.CreateTenantRequestObject,
) (contract.CreateTenantResponseObject, error) {
	if err := a.mayManage(ctx); err != nil {
		return nil, err
	}
	if err := a.options.Tenants.CreateTenant(ctx, *r.Body); err != nil {
		return nil, err
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "tenant created", slog.String("name", r.Body.Name),
		slog.String("by", access.Caller(ctx).Name))
	return contract.CreateTenant204Response{}, nil
}

// DeleteTenant implements contract.StrictServerInterface.
func (a *Operating) DeleteTenant(
	ctx context.Context, r contract.DeleteTenantRequestObject,
) (contract.DeleteTenantResponseObject, error) {
	if err := a.mayManage(ctx); err != nil {
		return nil, err
	}
	if err := a.options.Tenants.DeleteTenant(ctx, r.Tenant); err != nil {
		return nil, err
	}
	a.options.Log.LogAttrs(ctx, slog.LevelInfo, "tenant deleted", slog.String("name", r.Tenant),
		slog.String("by", access.Caller(ctx).Name))
	return contract.DeleteTenant204Response{}, nil
}
