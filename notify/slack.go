package notify

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sibyl-trace/sibyl/describe"
	"github.com/sibyl-trace/sibyl/directory"
	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// slackText is a text of Slack's block kit.
type slackText struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Verbatim bool   `json:"verbatim"` // otherwise Slack turns names that look like links, channels or mentions into these
}

// slackBlock is a section, a context or a row of buttons of Slack's block kit.
type slackBlock struct {
	Type     string      `json:"type"`
	Text     *slackText  `json:"text,omitempty"`
	Fields   []slackText `json:"fields,omitempty"`   // of a section; at most maxFields
	Elements any         `json:"elements,omitempty"` // of a context, at most 10 slackText; or the buttons
}

// slackButton is a button. Slack sends its action and value to the interactivity URL of the app that posted it.
type slackButton struct {
	Type    string        `json:"type"`
	Text    slackPlain    `json:"text"`
	Action  string        `json:"action_id"`
	Value   string        `json:"value"`
	Confirm *slackConfirm `json:"confirm,omitempty"`
}

// slackConfirm is the question that Slack asks before it reports a click.
type slackConfirm struct {
	Title   slackPlain `json:"title"`
	Text    slackPlain `json:"text"`
	Confirm slackPlain `json:"confirm"`
	Deny    slackPlain `json:"deny"`
}

// slackPlain is a text without markup.
type slackPlain string

// MarshalJSON implements json.Marshaler.
func (t slackPlain) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]string{"type": "plain_text", "text": string(t)})
}

// Slack accepts sections of 3000 characters, fields and links of 2000. An escaped rune takes up to five characters.
const (
	maxSentence = 500  // runes before escaping
	maxLink     = 2000 // bytes
	maxFields   = 10

	maxConfirmed = 200 // runes of a name in the question before a silence; the question has at most 300
)

// slackMessage returns the message about e for an incoming webhook of Slack.
func slackMessage(e *Event) any { return slackBlocks(e, e.links(), nil) }

// slackInteractive is like slackMessage, with buttons while the event's incident is open. The button takes the place of
// the link to the dialog for acknowledgements.
func slackInteractive(e *Event) any {
	x := e.Data.Incident
	if x == nil || x.Closed != nil {
		return slackMessage(e)
	}
	key := alertKey(e.Type, e.subject)
	buttons := []slackButton{{
		Type:   "button",
		Text:   "Silence 1 h",
		Action: "silence",
		Value:  key,
		Confirm: &slackConfirm{
			Title: "Silence 1 h",
			Text: slackPlain("Stop all notifications about incidents of " +
				trace.Printable(x.Service, maxConfirmed) + " for an hour?"),
			Confirm: "Silence",
			Deny:    "Cancel",
		},
	}}
	links := slices.DeleteFunc(e.links(), func(l directory.URL) bool { return l.Name == acknowledgeAction })
	if x.Acknowledged == nil {
		acknowledge := slackButton{Type: "button", Text: acknowledgeAction, Action: "acknowledge", Value: key}
		buttons = slices.Insert(buttons, 0, acknowledge)
	}
	return slackBlocks(e, links, buttons)
}

// slackBlocks returns the message about e with links and buttons.
func slackBlocks(e *Event, links []directory.URL, buttons []slackButton) any {
	sentence := slackSentence(bounded(e.phrases(), maxSentence))
	message := struct {
		Text   string       `json:"text"` // for notifications
		Blocks []slackBlock `json:"blocks"`
	}{Text: e.title() + ": " + sentence}
	section := slackBlock{Type: "section", Text: markdown("*" + e.title() + "*: " + sentence)}
	message.Blocks = append(message.Blocks, section)
	for figures := range slices.Chunk(e.figures(), maxFields) {
		fields := slackBlock{Type: "section"}
		for _, f := range figures {
			fields.Fields = append(fields.Fields, *markdown("*" + f.name + "*\n" + e.slackFigure(f)))
		}
		message.Blocks = append(message.Blocks, fields)
	}
	if len(buttons) > 0 {
		message.Blocks = append(message.Blocks, slackBlock{Type: "actions", Elements: buttons})
	}
	var shown []slackText
	for _, l := range links {
		if link := slackLink(l); len(link) <= maxLink {
			shown = append(shown, *markdown(link))
		}
	}
	if len(shown) > 0 {
		message.Blocks = append(message.Blocks, slackBlock{Type: "context", Elements: shown})
	}
	return message
}

// slackSentence returns the text of s, escaped. Slack shows the times in it in the reader's time zone.
func slackSentence(s describe.Sentence) string {
	var b strings.Builder
	for _, p := range s {
		if p.Kind == describe.TimePhrase {
			b.WriteString(slackClock(p.At, p.Text != describe.Clock(p.At, false)))
		} else {
			b.WriteString(slackEscape(p.Text))
		}
	}
	return b.String()
}

// slackFigure returns the text of a figure. Slack shows the onset of an incident in the reader's time zone.
func (e *Event) slackFigure(f figure) string {
	if x := e.Data.Incident; x != nil && f.key == "began" {
		return slackTime(x.Onset, "{date_short_pretty} {time_secs}", f.text)
	}
	return slackEscape(f.text)
}

// slackClock returns t, to the minute, in a notation that Slack shows in the reader's time zone, with the date if dated
// is set.
func slackClock(t trace.Nanos, dated bool) string {
	layout := "{time}"
	if dated {
		layout = "{date_short_pretty} {time}"
	}
	return slackTime(moment(t), layout, describe.Clock(t, dated)+" UTC")
}

// slackTime returns t in a notation that Slack shows in the reader's time zone. Clients that can't do so show
// `otherwise`.
func slackTime(t moment, layout, otherwise string) string {
	return fmt.Sprintf("<!date^%d^%s|%s>", t.time().Unix(), layout, otherwise)
}

func markdown(text string) *slackText { return &slackText{Type: "mrkdwn", Text: text, Verbatim: true} }

// slackEscape escapes mentions, links and control characters.
func slackEscape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

// slackLink returns u as a link in Slack's markup. It percent-encodes characters that would end the address.
func slackLink(u directory.URL) string {
	address := strings.NewReplacer("|", "%7C", "<", "%3C", ">", "%3E", " ", "%20").Replace(u.URL)
	return "<" + address + "|" + slackEscape(strings.ReplaceAll(u.Name, "|", "/")) + ">"
}

// ReplyToSlack adds a message to the channel in which somebody clicked a button. to is the click's response URL.
func ReplyToSlack(ctx context.Context, to, text string) error {
	c, err := newCaller(&Endpoint{Name: "Slack", URL: to, Format: "slack"}, time.Now)
	if err != nil {
		return err
	}
	defer c.close()
	body, err := json.Marshal(map[string]any{
		"text": slackEscape(text), "response_type": "in_channel", "replace_original": false,
	})
	if err != nil {
		return err
	}
	answer, err := c.call(ctx, &store.Message{Body: body})
	if err != nil {
		return err
	}
	return answer.Err()
}
