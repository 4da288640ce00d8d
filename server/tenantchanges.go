package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sibyl-trace/sibyl/api/access"
	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Refusals of requests to create or delete tenants.
var (
	errStopping = refusal.New(refusal.Overloaded, "the service is stopping", "").Later(time.Second)
	errFiles    = refusal.New(refusal.Conflict, "the process may not open enough files for another tenant",
		"raise LimitNOFILE, or ulimit -n")
	errReplicas = refusal.New(refusal.Conflict, "replicas can't serve tenants yet",
		"run the service alone by leaving cluster.brokers empty")
	errFull = refusal.New(refusal.Conflict, "the other tenants have filled the memory that a new one needs",
		"stop the service, create the tenant with --data-dir, and start the service again: it then divides the memory")
)

// Tenants implements [operating.Tenants].
func (s *Server) Tenants() (all []contract.Tenant) {
	for _, t := range s.all() {
		x := contract.Tenant{
			Name:           cmp.Or(t.Name, access.DefaultTenant),
			Path:           t.config.API.BasePath,
			MemoryPercent:  t.Memory,
			SpansPerSecond: t.Spans,
		}
		if !t.Created.IsZero() {
			x.Created = &t.Created
		}
		all = append(all, x)
	}
	return all
}

// CreateTenant implements [operating.Tenants]. The new tenant gets the share of the memory that it will have after a
// restart. The other tenants keep their shares until then, because most of their limits can't change while they run.
// The heap limit of the process applies to all of them together, so CreateTenant refuses a tenant if the others already
// hold more of the heap than they will have after a restart: the new tenant couldn't accept anything.
func (s *Server) CreateTenant(ctx context.Context, x contract.TenantRequest) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	switch {
	case s.start == nil:
		return errStopping
	case s.config.Clustered():
		return errReplicas
	}
	made := Tenant{
		Name:    x.Name,
		Created: time.Now().UTC().Truncate(time.Second),
		Quota:   Quota{Memory: x.MemoryPercent, Spans: x.SpansPerSecond},
	}
	t, err := s.addTenant(made)
	switch {
	case errors.Is(err, ErrTenantName):
		return refusal.New(refusal.Invalid, err.Error(), "")
	case errors.Is(err, ErrTenantThere), errors.Is(err, errLeaving), errors.Is(err, errTenants),
		errors.Is(err, errShares), errors.Is(err, errMemory):
		return refusal.New(refusal.Conflict, err.Error(), "")
	case err != nil:
		return err
	}
	s.start(t)
	select {
	case <-t.live.Started():
	case <-ctx.Done(): // it opens nevertheless
	}
	s.open.Store(s.open.Load().with(t))
	return nil
}

// addTenant creates the directory of a tenant and opens it. If it fails, it removes the directory again.
func (s *Server) addTenant(made Tenant) (*tenant, error) {
	quotas := append(s.open.Load().quotas(), made)
	each, err := configs(s.applied, quotas)
	if err != nil {
		return nil, err
	}
	files := ownFileLimits(len(each))
	if files.database < leastDatabase {
		return nil, errFiles
	}
	of := each[len(each)-1]
	others := 1 - float64(of.Memory)/float64(of.ProcessMemory)
	if float64(live.Heap()) > others*float64(of.IntakeLimits().Heap) {
		return nil, errFull
	}
	if err := CreateTenant(s.config.DataDir, made); err != nil {
		return nil, err
	}
	t, err := openTenant(opening{
		Tenant: made,
		config: of,
		disk:   s.disk,
		files:  files.database,
		giveUp: s.giveUp,
		log:    s.log,
	})
	if err == nil {
		err = t.serve(&s.shared)
	}
	if err == nil {
		err = s.receive(t)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the tenant %s: %w", made.Name, err), t.close(),
			DeleteTenant(s.config.DataDir, made.Name))
	}
	return t, nil
}

// DeleteTenant implements [operating.Tenants]. When it returns nil, the tenant is gone, even if the process is killed.
// If the tenant's last requests outlast ctx, its directory is removed later.
func (s *Server) DeleteTenant(ctx context.Context, name string) error {
	t, err := s.withdraw(name)
	if err != nil {
		return err
	}
	removed := make(chan error, 1)
	go func() {
		defer s.removing.Done()
		removed <- s.remove(t)
	}()
	select {
	case err = <-removed:
	case <-ctx.Done():
	}
	return err
}

// withdraw marks a tenant as deleted on disk, and stops passing requests to it. The caller must then call remove.
func (s *Server) withdraw(name string) (*tenant, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	all := s.open.Load()
	t := all.named[name]
	switch {
	case s.start == nil:
		return nil, errStopping
	case t == nil:
		return nil, refusal.New(refusal.NotFound, ErrNoTenant.Error(), "sibyl tenant list shows them")
	}
	if err := beginDeletion(t.config.DataDir); err != nil {
		return nil, err
	}
	s.open.Store(all.without(t))
	s.removing.Add(1)
	return t, nil
}

// remove ends the connections of a tenant's agents and event readers, waits until its requests have ended, and removes
// its directory.
func (s *Server) remove(t *tenant) error {
	t.mu.Lock()
	t.deleted = true
	t.mu.Unlock()
	t.api.Close()
	t.leave()
	t.using.Wait()
	t.stop()
	t.running.Wait()
	err := errors.Join(t.close(), finishDeletion(s.config.DataDir, t.Name))
	if err != nil {
		t.log.Error("the data of the deleted tenant cannot be removed; the next start tries again",
			slog.Any("error", err))
		return err
	}
	t.log.Info("deleted")
	return nil
}
