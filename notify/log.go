package notify

import "log/slog"

// logged maps the types of events that the service logs to their names in the log.
var logged = map[Type]string{
	IncidentOpened:  "opened",
	IncidentLocated: "located",
	IncidentClosed:  "closed",
	IncidentSteady:  "steady for a day",
}

// Log writes e to log if e is about an incident that opened, was located, has been steady for a day, or closed.
func (e *Event) Log(log *slog.Logger) {
	change, x := logged[e.Type], e.Data.Incident
	if change == "" || x == nil {
		return
	}
	log.Info("incident", slog.String("change", change), slog.String("id", x.ID), slog.String("severity", x.Severity),
		slog.String("text", e.sentence()), slog.String("url", e.page()))
}
