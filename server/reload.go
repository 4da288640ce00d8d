package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"time"

	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/engine"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Apply makes c hold as far as it can change while the service runs: [config.Reload] says how far that is. What decisions depend on counts from
// the end of the epoch on, and after a restart for the same epochs. After an error everything is as before. It has one caller at a time.
func (s *Server) Apply(ctx context.Context, c *config.Config) error {
	outward, err := s.outward.prepare(c)
	if err != nil {
		return err
	}
	old, next := s.applied.Load().Engine(), c.Engine()
	if settings := next.Settings(); !reflect.DeepEqual(settings, old.Settings()) {
		if _, err := s.live.Change(ctx, engine.Change{Settings: &settings}); err != nil {
			return fmt.Errorf("record the settings: %w", err)
		}
	}
	if err := outward(); err != nil {
		return err
	}
	s.applied.Store(c)
	s.live.Retain(retention(c))
	s.api.SetLinks(c.Links())
	return nil
}

// Reloader has a server follow its configuration.
type Reloader struct {
	Server *Server
	Load   func() (*config.Effective, error) // reads the configuration again
	Level  *slog.LevelVar                    // of the log
	Every  time.Duration                     // between two looks at the file; 0: two seconds
	Log    *slog.Logger
}

// lookEvery is how often the file is looked at: reading a few kilobytes costs nothing.
const lookEvery = 2 * time.Second

// Run reloads the configuration whenever somebody asks for it, and when its file has changed and two looks at it see the same: it may
// be written piece by piece. It begins with the one that the server was made with, and ends when ctx is done.
func (r *Reloader) Run(ctx context.Context, held *config.Effective, asked <-chan os.Signal) {
	if r.Every == 0 {
		r.Every = lookEvery
	}
	looks := time.NewTicker(r.Every)
	defer looks.Stop()
	known, last := held.Read, held.Read // of the last reload; of the last look
	for {
		now := false
		select {
		case <-asked:
			now = true
		case <-looks.C:
		case <-ctx.Done():
			return
		}
		seen := config.Fingerprint(held.File)
		if now || seen == last && seen != known {
			next, again := r.reload(ctx, held)
			if held, known = next, seen; again {
				known = "to be tried again"
			}
		}
		last = seen
	}
}

// reload reads the configuration and has it applied. It returns the one that holds then, and whether to try again.
func (r *Reloader) reload(ctx context.Context, held *config.Effective) (next *config.Effective, again bool) {
	read, err := r.Load()
	if err != nil {
		for _, m := range mistakes(err) {
			r.Log.ErrorContext(ctx, "the configuration has a mistake, the one before still holds", slog.Any("error", m))
		}
		return held, false
	}
	next, refused := config.Reload(held, read)
	if err := r.Server.Apply(ctx, &next.Config); err != nil {
		r.Log.ErrorContext(ctx, "the configuration cannot be applied, the one before still holds", slog.Any("error", err))
		return held, errors.Is(err, refusal.Overloaded)
	}
	_ = r.Level.UnmarshalText([]byte(next.Config.Log.Level)) // the configuration holds only levels
	if len(refused) > 0 {
		r.Log.WarnContext(ctx, "changes of the configuration need a restart", slog.Any("keys", refused))
	}
	r.Log.InfoContext(ctx, "the configuration was reloaded", slog.Any("changed", config.Changes(held, next)))
	return next, false
}

// mistakes returns what is wrong with a configuration, one by one.
func mistakes(err error) []error {
	all, ok := errors.AsType[config.Errors](err)
	if !ok {
		return []error{err}
	}
	errs := make([]error, len(all))
	for i, m := range all {
		errs[i] = m
	}
	return errs
}
