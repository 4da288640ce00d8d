package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/api/audit"
	"github.com/sibyl-trace/sibyl/config"
	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Apply applies the keys of c that can change while the service runs; see [config.Reload]. Settings that affect
// decisions take effect at the end of the epoch, and after a restart they apply to the same epochs. If a value in c
// can't be used or the settings can't be recorded, Apply returns an error and nothing has changed, except for tenants
// that had already been changed.
func (s *Server) Apply(ctx context.Context, c *config.Config) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	all := s.open.Load()
	each, err := configs(c, all.quotas())
	for i, t := range all.sorted {
		if err == nil {
			err = t.apply(ctx, each[i])
		}
	}
	if err == nil {
		s.applied = c
		s.warnOfUnknown()
	}
	return err
}

// Reloader reloads the configuration of a server when its file changes.
type Reloader struct {
	Server *Server
	Load   func() (*config.Effective, error) // reads the configuration
	Level  *slog.LevelVar                    // level of the log
	Every  time.Duration                     // interval between checks of the file; 0: checkInterval
	Log    *slog.Logger
}

// checkInterval is the default interval between checks of the file. It is short, because the file contains only a few
// kilobytes.
const checkInterval = 2 * time.Second

// Run reloads the configuration on every signal from asked, and when its file has changed. It acts only on a change
// that two consecutive checks have seen, because an editor may write the file piece by piece. Run starts from current,
// the configuration of the server, and ends when ctx is done.
func (r *Reloader) Run(ctx context.Context, current *config.Effective, asked <-chan os.Signal) {
	if r.Every == 0 {
		r.Every = checkInterval
	}
	checks := time.NewTicker(r.Every)
	defer checks.Stop()
	loaded, last := current.Read, current.Read // fingerprints at the last reload and at the last check
	for {
		now := false
		select {
		case <-asked:
			now = true
		case <-checks.C:
		case <-ctx.Done():
			return
		}
		seen := config.Fingerprint(current.File)
		if now || seen == last && seen != loaded {
			next, retry := r.reload(ctx, current, now, loaded == tryAgain)
			if current, loaded = next, seen; retry {
				loaded = tryAgain
			}
		}
		last = seen
	}
}

// tryAgain stands for a fingerprint that differs from the file's, so that Run reloads the file again.
const tryAgain = "none"

// reload reads and applies the configuration. asked is set if a signal asked for the reload, and again is set if the
// previous attempt failed and must be repeated. reload returns the configuration in effect, and whether to try again. A
// series of failed attempts has only one entry in the audit log.
func (r *Reloader) reload(
	ctx context.Context, current *config.Effective, asked, again bool,
) (next *config.Effective, retry bool) {
	read, err := r.Load()
	if err != nil {
		for _, e := range configErrors(err) {
			r.Log.ErrorContext(ctx, "invalid configuration; the previous one stays in effect", slog.Any("error", e))
		}
		return current, false
	}
	next, refused := config.Reload(current, read)
	changed := config.Changes(current, next)
	e := audit.Entry{Via: "file", Operation: "reload"}
	if asked {
		e.Via = "signal"
	}
	if len(changed) > 0 {
		e.Detail = "changed=" + strings.Join(changed, ",")
	}
	id := ""
	if !again {
		id, _ = r.Server.main.audit.Start(e) // logs its error; the new configuration may free the space that is missing
	}
	err = r.Server.Apply(ctx, &next.Config)
	if err != nil {
		r.Server.main.audit.Finish(id, http.StatusInternalServerError, "")
		r.Log.ErrorContext(ctx, "the configuration cannot be applied; the previous one stays in effect",
			slog.Any("error", err))
		return current, errors.Is(err, refusal.Overloaded)
	}
	if again {
		id, _ = r.Server.main.audit.Start(e)
	}
	r.Server.main.audit.Finish(id, http.StatusOK, "")
	_ = r.Level.UnmarshalText([]byte(next.Config.Log.Level)) // the configuration contains only valid levels
	if len(refused) > 0 {
		r.Log.WarnContext(ctx, "changes of the configuration need a restart", slog.Any("keys", refused))
	}
	r.Log.InfoContext(ctx, "configuration reloaded", slog.Any("changed", changed))
	return next, false
}

// configErrors returns the individual errors in err, an error of a configuration.
func configErrors(err error) []error {
	all, ok := errors.AsType[config.Errors](err)
	if !ok {
		return []error{err}
	}
	errs := make([]error, len(all))
	for i, e := range all {
		errs[i] = e
	}
	return errs
}
