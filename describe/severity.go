package describe

import "github.com/sibyl-trace/sibyl/internal/units"

// Severity holds the figures that give an incident its severity.
type Severity struct {
	Name      string     // of the severity
	Lowest    bool       // it is the lowest severity: no figure reaches the bound of a higher one
	Bound     float64    // of Score, or of Failed if Failing is not empty
	Service   string     // the first suspect
	Score     float64    // of the first suspect
	Waits     bool       // the score is the time that messages wait for the suspect
	Failing   string     // the request type whose failures give the severity; may be empty
	Failed    float64    // share of its requests that fail, above the usual share
	Objective *Objective // the violated objective that gives the severity; may be nil
	Fast      bool       // it burns so fast that the budget for 30 days would last two
}

// Severity describes the figure that gives an incident its severity, with the bound that it reaches.
func (n *Names) Severity(x *Severity) string {
	switch {
	case x.Objective != nil && x.Fast:
		return "Requests miss the objective " + n.Clean(x.Objective.Name) + " so fast that its error budget of 30 days is spent within two: " + x.Name + "."
	case x.Objective != nil:
		return "Requests miss the objective " + n.Clean(x.Objective.Name) + ": " + x.Name + "."
	case x.Failing != "":
		return units.Percent(x.Failed) + " more of the requests of " + n.Clean(x.Failing) + " fail than usual. From " + units.Percent(x.Bound) + " on an incident is " + x.Name + "."
	}
	if x.Waits && !x.Lowest {
		return "Messages wait for " + n.Clean(x.Service) + ", but no request waits for them: " + x.Name + "."
	}
	lose := "Averaged over all requests, affected or not, " + n.Clean(x.Service) + " costs a request " + units.Percent(x.Score) + " of its usual time; a failed request loses all of it. "
	if x.Lowest {
		return lose + "Below " + units.Percent(x.Bound) + ", without a missed objective, an incident is " + x.Name + "."
	}
	return lose + "From " + units.Percent(x.Bound) + " on an incident is " + x.Name + "."
}
