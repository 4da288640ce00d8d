package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/internal/units"
)

// minPrefix is the minimum length of a prefix of an ID. Shorter numbers are ranks.
const minPrefix = 4

// findProblem returns the ID of the problem with the given name, which is a rank or a prefix of an ID. It looks for
// closed problems only if no open problem matches.
func findProblem(ctx context.Context, c *Client, name string) (string, error) {
	list, err := c.Problems(ctx, contract.ListProblemsParams{Muted: new(contract.ListProblemsParamsMutedAll)}, 0)
	if err != nil {
		return "", err
	}
	if rank, err := strconv.Atoi(name); err == nil && len(name) < minPrefix {
		for i := range list.Items {
			if list.Items[i].Rank == rank {
				return list.Items[i].ID, nil
			}
		}
	}
	found := withPrefix(list, name)
	if len(found) == 0 && len(name) >= minPrefix {
		closed, err := c.Problems(ctx,
			contract.ListProblemsParams{Muted: new(contract.ListProblemsParamsMutedAll), Closed: new(true)}, 0)
		if err != nil {
			return "", err
		}
		found = withPrefix(closed, name)
	}
	switch len(found) {
	case 0:
		return "", noProblem(ctx, c, name, list)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("the IDs of %d problems begin with %s: give more digits", len(found), name)
}

// noProblem returns the error for a name that matches no problem. open lists all open problems.
func noProblem(ctx context.Context, c *Client, name string, open *contract.ProblemList) error {
	if incident, err := findIncident(ctx, c, name); err == nil && len(name) >= minPrefix {
		return fmt.Errorf("%s is an incident: sibyl incidents %s shows it", name, incident[:8])
	}
	if open.Learning && len(open.Items) == 0 {
		return fmt.Errorf("there is no problem %q: Sibyl is learning normal behaviour; run sibyl problems to see "+
			"how long is left",
			name)
	}
	return fmt.Errorf(
		"there is no problem %q: sibyl problems lists them; name one by its rank or the first digits of its ID", name)
}

// withPrefix returns the distinct IDs in list that start with prefix. It returns nil if prefix is shorter than
// minPrefix.
func withPrefix(list *contract.ProblemList, prefix string) (found []string) {
	for i := range list.Items {
		id := list.Items[i].ID
		if len(prefix) >= minPrefix && strings.HasPrefix(id, prefix) && !slices.Contains(found, id) {
			found = append(found, id)
		}
	}
	return found
}

// findIncident returns the ID of the incident with the given name: its position in the list, its ID, or a prefix of the
// ID.
func findIncident(ctx context.Context, c *Client, name string) (string, error) {
	prefix := strings.ToLower(name)
	if incidentID.MatchString(prefix) {
		return prefix, nil
	}
	if rank, err := strconv.Atoi(name); err == nil && rank > 0 && len(name) < minPrefix {
		return incidentAt(ctx, c, rank)
	}
	list, err := c.Incidents(ctx, contract.ListIncidentsParams{Muted: new(contract.ListIncidentsParamsMutedAll)}, 0)
	if err != nil {
		return "", err
	}
	var found []string
	for i := range list.Items {
		if len(prefix) >= minPrefix && strings.HasPrefix(list.Items[i].ID, prefix) {
			found = append(found, list.Items[i].ID)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("there is no incident %q: sibyl incidents lists them; name one by its ID or at least "+
			"the first %d digits of it", name, minPrefix)
	case 1:
		return found[0], nil
	}
	return "", fmt.Errorf("the IDs of %d incidents begin with %s: give more digits", len(found), name)
}

// incidentAt returns the ID of the incident at position place, counted from 1, in the list that omits muted incidents.
func incidentAt(ctx context.Context, c *Client, place int) (string, error) {
	list, err := c.Incidents(ctx, contract.ListIncidentsParams{}, place)
	switch {
	case err != nil:
		return "", err
	case len(list.Items) == 0 && list.Learning:
		return "", fmt.Errorf(
			"there is no incident %d: Sibyl is learning normal behaviour; run sibyl incidents to see how long is "+
				"left", place)
	case len(list.Items) < place:
		return "", fmt.Errorf("there is no incident %d: sibyl incidents lists %s",
			place, units.Plural(len(list.Items), "incident"))
	}
	return list.Items[place-1].ID, nil
}

// findSubject returns the ID of the incident or, if no incident matches, of the problem with the given name.
func findSubject(ctx context.Context, c *Client, name string) (string, error) {
	id, err := findIncident(ctx, c, name)
	if err == nil {
		return id, nil
	}
	if _, refused := errors.AsType[*RefusedError](err); refused {
		return "", err
	}
	if id, err = findProblem(ctx, c, name); err != nil {
		return "", fmt.Errorf(
			"there is no open incident or problem %q: sibyl incidents and sibyl problems list them", name)
	}
	return id, nil
}

// findTrace returns the ID of the only kept trace whose ID starts with prefix, which must have at least minPrefix
// digits.
func findTrace(ctx context.Context, c *Client, prefix string) (string, error) {
	if len(prefix) < minPrefix || !tracePrefix.MatchString(prefix) {
		return "", fmt.Errorf("there is no trace %q: sibyl traces lists the kept ones; name one by its ID or at "+
			"least the first %d digits of it", prefix, minPrefix)
	}
	list, err := c.Traces(ctx, contract.ListTracesParams{Trace: &prefix}, 2)
	switch {
	case err != nil:
		return "", err
	case len(list.Items) == 0:
		return "", fmt.Errorf(
			"no kept trace begins with %s: sibyl traces lists the kept ones; your tracing backend may have it", prefix)
	case len(list.Items) > 1:
		return "", fmt.Errorf("the IDs of several traces begin with %s: give more digits", prefix)
	}
	return list.Items[0].ID, nil
}

// findTracepoint returns the ID of the tracepoint whose name or ID is name.
func findTracepoint(ctx context.Context, c *Client, name string) (string, error) {
	if tracepointID.MatchString(name) {
		return name, nil
	}
	list, err := c.Tracepoints(ctx, contract.ListTracepointsParams{Q: &name}, 0)
	if err != nil {
		return "", err
	}
	var near []string
	for i := range list.Items {
		if list.Items[i].Name == name {
			return list.Items[i].ID, nil
		}
		near = append(near, list.Items[i].Name)
	}
	if len(near) == 1 {
		return "", fmt.Errorf("there is no tracepoint %q; did you mean %s?", name, near[0])
	}
	return "", fmt.Errorf("there is no tracepoint %q: sibyl tracepoints list shows them", name)
}
