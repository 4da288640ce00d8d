package client

import (
	"context"
	"net/http"

	"github.com/sibyl-trace/sibyl/api/contract"
)

// Admin is a [Client] with the operations that only administrators may perform.
type Admin struct{ *Client }

// DeadLetters returns up to `most` dead letters, oldest first. If `most` is 0, it returns all.
func (a Admin) DeadLetters(ctx context.Context, most int) (*contract.DeadLetterList, error) {
	return getPages(ctx, a.Client, nil, most, func(l *contract.DeadLetterList) (*[]contract.DeadLetter, *string) {
		return &l.Items, l.NextCursor
	}, "webhooks", "dead")
}

// DeadLetter returns the dead letter with the given number.
func (a Admin) DeadLetter(ctx context.Context, number string) (*contract.DeadLetterDetail, error) {
	return Get[contract.DeadLetterDetail](ctx, a.Client, nil, "webhooks", "dead", number)
}

// Resend queues the dead letter with the given number again.
func (a Admin) Resend(ctx context.Context, number string) error {
	return a.tell(ctx, http.MethodPost, nil, "webhooks", "dead", number, "resend")
}

// Drop deletes the dead letter with the given number.
func (a Admin) Drop(ctx context.Context, number string) error {
	return a.tell(ctx, http.MethodDelete, nil, "webhooks", "dead", number)
}

// BackUp makes the service replace its backup, and returns the backup's directory on the service's machine.
func (a Admin) BackUp(ctx context.Context) (directory string, err error) {
	made, err := send[contract.Backup](ctx, a.Client, http.MethodPost, nil, "backup")
	if err != nil {
		return "", err
	}
	return made.Directory, nil
}

// Tenants returns the tenants of the process, the default one first.
func (a Admin) Tenants(ctx context.Context) ([]contract.Tenant, error) {
	list, err := Get[contract.TenantList](ctx, a.Client, nil, "tenants")
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// CreateTenant creates a tenant, and opens it.
func (a Admin) CreateTenant(ctx context.Context, t contract.TenantRequest) error {
	return a.tell(ctx, http.MethodPost, t, "tenants")
}

// DeleteTenant deletes a tenant with all its data.
func (a Admin) DeleteTenant(ctx context.Context, name string) error {
	return a.tell(ctx, http.MethodDelete, nil, "tenants", name)
}
