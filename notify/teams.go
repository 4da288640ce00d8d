package notify

import "github.com/sibyl-trace/sibyl/trace"

// Microsoft Teams accepts messages of 28 KiB. The limits below keep every message within it.
const (
	maxCardFigure = 200  // runes
	maxCardLink   = 1000 // bytes
)

// cardElement is an element of an Adaptive Card. It contains text runs, because text blocks would interpret markup in
// names.
type cardElement struct {
	Type    string    `json:"type"`
	Inlines []cardRun `json:"inlines"`
	Spacing string    `json:"spacing,omitempty"`
}

type cardRun struct {
	Type   string `json:"type"`
	Text   string `json:"text"`
	Size   string `json:"size,omitempty"`
	Weight string `json:"weight,omitempty"`
	Color  string `json:"color,omitempty"`
}

type cardAction struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	URL   string `json:"url"`
}

type card struct {
	Schema  string            `json:"$schema"`
	Type    string            `json:"type"`
	Version string            `json:"version"` // 1.4 is the latest version that all Teams clients support
	Teams   map[string]string `json:"msteams"`
	Body    []cardElement     `json:"body"`
	Actions []cardAction      `json:"actions,omitempty"`
}

type teamsAttachment struct {
	ContentType string  `json:"contentType"`
	ContentURL  *string `json:"contentUrl"` // Teams expects null
	Content     card    `json:"content"`
}

type teamsMessage struct {
	Type        string            `json:"type"`
	Attachments []teamsAttachment `json:"attachments"`
}

// teams returns e as an Adaptive Card for the webhook of a workflow of Microsoft Teams.
func teams(e *Event) any {
	c := card{
		Schema:  "http://adaptivecards.io/schemas/adaptive-card.json",
		Type:    "AdaptiveCard",
		Version: "1.4",
		Teams:   map[string]string{"width": "Full"},
		Body: []cardElement{
			richText("", cardRun{Text: e.title(), Size: "Large", Weight: "Bolder", Color: e.cardColor()}),
			richText("Small", cardRun{Text: trace.Printable(e.sentence(), maxSentence)}),
		},
	}
	for _, f := range e.figures() {
		if f.text != "" {
			c.Body = append(c.Body, richText("Small", cardRun{Text: f.name + ": ", Weight: "Bolder"},
				cardRun{Text: trace.Printable(f.text, maxCardFigure)}))
		}
	}
	for _, l := range e.links() {
		if len(l.URL) <= maxCardLink {
			c.Actions = append(c.Actions, cardAction{"Action.OpenUrl", trace.Printable(l.Name, maxCardFigure), l.URL})
		}
	}
	return teamsMessage{
		"message",
		[]teamsAttachment{{ContentType: "application/vnd.microsoft.card.adaptive", Content: c}},
	}
}

func richText(spacing string, runs ...cardRun) cardElement {
	for i := range runs {
		runs[i].Type = "TextRun"
	}
	return cardElement{Type: "RichTextBlock", Inlines: runs, Spacing: spacing}
}

// cardColor returns the colour of the card's title.
func (e *Event) cardColor() string {
	switch {
	case e.resolved:
		return "Good"
	case e.Type == IncidentOpened:
		return "Attention"
	}
	return "Default"
}
