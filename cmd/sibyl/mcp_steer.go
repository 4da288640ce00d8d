package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sibyl-trace/sibyl/api/contract"
	"github.com/sibyl-trace/sibyl/client"
	"github.com/sibyl-trace/sibyl/internal/cli"
	"github.com/sibyl-trace/sibyl/internal/terminal"
)

// Arguments of the MCP tools that steer.
type (
	steerArguments struct {
		ID      string `json:"id" jsonschema:"ID of an incident or a problem, or its first digits"`
		Action  string `json:"action" jsonschema:"start: search it ahead of all others, anew if the search is over; end: disable its tracepoints and don't search it; withdraw: let Sibyl decide again"`
		Minutes int    `json:"minutes,omitempty" jsonschema:"how long the decision holds; by default an hour for start and a day for end"`
		Reason  string `json:"reason,omitempty" jsonschema:"why, for the decision log that people read"`
	}

	overrideArguments struct {
		Tracepoint string `json:"tracepoint" jsonschema:"name or ID of a tracepoint, from list_tracepoints"`
		Action     string `json:"action" jsonschema:"enable: on, within the budget; forbid: off; withdraw: let the search decide again"`
		Minutes    int    `json:"minutes,omitempty" jsonschema:"how long the override holds, an hour by default"`
	}

	tracepointsArguments struct {
		Query string `json:"query,omitempty" jsonschema:"only tracepoints whose name or operation contains this text"`
		Limit int    `json:"limit,omitempty" jsonschema:"largest number of tracepoints, 20 by default"`
	}
)

// withdraw is the action that lets Sibyl decide again.
const withdraw = "withdraw"

// lasting returns a number of minutes as a duration, or usual if the number isn't positive.
func lasting(minutes int, usual time.Duration) time.Duration {
	if minutes <= 0 {
		return usual
	}
	return time.Duration(minutes) * time.Minute
}

// addSteering adds the tools that steer searches and tracepoints.
func addSteering(s *mcp.Server, service *client.Client) {
	addTool(s, "list_tracepoints", "List tracepoints, enabled ones first, with their cost and what they are on for.",
		func(ctx context.Context, in tracepointsArguments) (*contract.TracepointList, error) {
			return service.Tracepoints(ctx, contract.ListTracepointsParams{Q: &in.Query}, items(in.Limit))
		}, client.ShowTracepoints)
	addToolAs(s, steeringTool("steer_search", "Start or end the search for the cause of an incident or a problem. "+
		"Started, it enables tracepoints within the budget until the cause is located. It takes effect at the end of "+
		"the epoch, usually within ten seconds; then get_incident or get_problem has the evidence, and more of it "+
		"with each epoch."),
		func(ctx context.Context, in steerArguments) (string, error) {
			kind := contract.SteeringRequestKind(in.Action)
			switch {
			case in.Action == withdraw:
				return "Withdrawn: Sibyl decides again from the end of the epoch.", service.WithdrawSteering(ctx, in.ID)
			case kind != contract.SteeringRequestKindStart && kind != contract.SteeringRequestKindEnd:
				return "", cli.Usagef("action %q: want start, end or withdraw", in.Action)
			}
			x, err := service.Steer(ctx, in.ID, steering(kind, lasting(in.Minutes, 0), in.Reason))
			if err != nil {
				return "", err
			}
			return steered(x), nil
		}, showText)
	addToolAs(s, steeringTool("override_tracepoint", "Enable or forbid a tracepoint, or withdraw that. It takes "+
		"effect at the end of the epoch, within the budget, and ends by itself."),
		func(ctx context.Context, in overrideArguments) (string, error) {
			kind := contract.OverrideRequestKind(in.Action)
			switch {
			case in.Action == withdraw:
				return "Withdrawn: the search decides again from the end of the epoch.",
					service.Withdraw(ctx, in.Tracepoint)
			case kind != contract.OverrideRequestKindEnable && kind != contract.OverrideRequestKindForbid:
				return "", cli.Usagef("action %q: want enable, forbid or withdraw", in.Action)
			}
			until := time.Now().Add(lasting(in.Minutes, time.Hour))
			x, err := service.Override(ctx, in.Tracepoint, contract.OverrideRequest{Kind: kind, Until: &until})
			if err != nil {
				return "", err
			}
			return fmt.Sprintf("%s %s, from the end of the epoch until %s.",
				in.Action, x.Name, until.Format(time.TimeOnly)), nil
		}, showText)
}

// steeringTool returns the description of a tool that changes the searches of Sibyl. Repeating a call must change
// nothing.
func steeringTool(name, description string) *mcp.Tool {
	return &mcp.Tool{
		Name:        name,
		Description: description,
		Annotations: &mcp.ToolAnnotations{
			DestructiveHint: new(false), IdempotentHint: true, OpenWorldHint: new(false),
		},
	}
}

// showText writes text with unprintable characters replaced.
func showText(w io.Writer, text string, _ terminal.Style, _ time.Time) error {
	_, err := fmt.Fprintln(w, terminal.Printable(text))
	return err
}
