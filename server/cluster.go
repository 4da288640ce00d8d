package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/engine/live"
	"github.com/sibyl-trace/sibyl/ingest/journal"
	"github.com/sibyl-trace/sibyl/ingest/journal/kafka"
)

// errClusterTenants is returned for a data directory with tenants if there are several replicas.
var errClusterTenants = errors.New("replicas can't serve tenants yet: delete the tenants, or run this service alone " +
	"by leaving cluster.brokers empty")

// sharedJournal returns own, or a journal that shares the records of own with other replicas if c configures them.
func sharedJournal(c *config.Config, own *journal.Journal, log *slog.Logger) (live.Journal, error) {
	x := &c.Cluster
	if !c.Clustered() {
		return own, nil
	}
	password, err := x.Password()
	if err != nil {
		return nil, err
	}
	o := kafka.Options{
		Brokers:   x.Brokers,
		Topic:     x.Topic,
		User:      x.User,
		Password:  password,
		URL:       c.ReplicaURL(),
		Retention: x.Retention,
		Patience:  x.Patience,
		Log:       log,
	}
	if x.Encryption == "tls" {
		if o.TLS, err = brokerTLS(x); err != nil {
			return nil, err
		}
	}
	return kafka.New(own, o)
}

// brokerTLS returns the configuration of encrypted connections to the brokers.
func brokerTLS(x *config.Cluster) (c *tls.Config, err error) {
	c = &tls.Config{MinVersion: tls.VersionTLS12}
	if x.CAFile != "" {
		if c.RootCAs, err = authorities(x.CAFile, "cluster.ca-file"); err != nil {
			return nil, err
		}
	}
	if x.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(x.CertFile, x.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate for the brokers: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// sentTimeout limits the time to tell the other replicas that a message was delivered.
const sentTimeout = 30 * time.Second

// delivered tells the other replicas that a message was delivered, so that they don't send it again.
func (t *tenant) delivered(ctx context.Context, event, endpoint string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sentTimeout)
	defer cancel()
	if _, err := t.live.Change(ctx, engine.Change{Sent: &engine.Sent{Event: event, Endpoint: endpoint}}); err != nil {
		t.log.WarnContext(ctx, "webhooks: a message may be sent twice, because the other replicas could not be told",
			slog.String("endpoint", endpoint), slog.String("event", event), slog.Any("error", err))
	}
}

// receive takes over what the leading replica shares.
func (t *tenant) receive(x *engine.Change) {
	var err error
	switch {
	case x.Sent != nil:
		err = t.outbound.outbox.Delivered(x.Sent.Event, x.Sent.Endpoint)
	case x.File != nil:
		err = t.files.take(x.File)
	}
	if err != nil {
		t.log.Error("what the leading replica shares can't be stored", slog.Any("error", err))
	}
}
