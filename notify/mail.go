package notify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"strings"
	"time"

	g "maragu.dev/gomponents"
	h "maragu.dev/gomponents/html"

	"github.com/sibyl-trace/sibyl/store"
	"github.com/sibyl-trace/sibyl/trace"
)

// mailBody is the form of an event for e-mail in the outbox. The addresses are added when the e-mail is sent.
type mailBody struct {
	Subject string `json:"subject"`
	Text    string `json:"text"`
	HTML    string `json:"html"`
	Thread  string `json:"thread"` // the same for all events of an incident or a problem; may be empty
}

// maxSubject is the maximum length of the subject in runes. It is short because mail programs show only one line.
const maxSubject = 150

// mailOf returns the [mailBody] of e.
func mailOf(e *Event) any {
	body := mailBody{Subject: trace.Printable(e.title()+": "+e.sentence(), maxSubject), Text: e.text()}
	if !e.subject.IsZero() {
		body.Thread = alertKey(e.Type, e.subject)
	}
	var b strings.Builder
	if err := e.html().Render(&b); err != nil {
		panic(err) // a Builder accepts everything
	}
	body.HTML = b.String()
	return body
}

// text returns e as plain text: the sentence, the figures and the links, each on its own line.
func (e *Event) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", e.title(), e.sentence())
	for _, f := range e.figures() {
		if f.text != "" {
			fmt.Fprintf(&b, "%s: %s\n", f.name, f.text)
		}
	}
	b.WriteString("\n")
	for _, l := range e.links() {
		fmt.Fprintf(&b, "%s: %s\n", l.Name, l.URL)
	}
	return strings.TrimSpace(b.String()) + "\n"
}

// html is like [Event.text], but returns an HTML page. The page uses no scripts, styles or images, because mail
// programs block them.
func (e *Event) html() g.Node {
	var rows, links []g.Node
	for _, f := range e.figures() {
		if f.text != "" {
			rows = append(rows, h.Tr(h.Td(h.B(g.Text(f.name))), h.Td(g.Text(f.text))))
		}
	}
	for _, l := range e.links() {
		links = append(links, h.Li(h.A(h.Href(l.URL), g.Text(l.Name))))
	}
	return h.Doctype(h.HTML(
		h.Head(h.Meta(h.Charset("utf-8")), h.TitleEl(g.Text(e.title()))),
		h.Body(h.H3(g.Text(e.title())), h.P(g.Text(e.sentence())), h.Table(rows...), h.Ul(links...)),
	))
}

// shortenLines returns up to `most` runes from the start of s. Unlike [shorten], it keeps line breaks.
func shortenLines(s string, most int) string {
	runes := []rune(s)
	return string(runes[:min(len(runes), most)])
}

// Mail is the destination of e-mails, and the server that accepts them.
type Mail struct {
	Server   string // host and port
	Security string // starttls, tls or none; passwords are sent over encrypted connections only
	From     mail.Address
	To       []mail.Address
	Username string // empty: no authentication
	Password string
}

// compose returns an e-mail with headers for the message m. All attempts to send m have the same text and Message-ID,
// so that receivers can detect duplicates.
func (d *Mail) compose(m *store.Message) ([]byte, error) {
	var body mailBody
	if err := json.Unmarshal(m.Body, &body); err != nil {
		return nil, fmt.Errorf("decode the e-mail: %w", err)
	}
	_, domain, _ := strings.Cut(d.From.Address, "@")
	var b bytes.Buffer
	parts := multipart.NewWriter(&b)
	if err := parts.SetBoundary("sibyl-" + m.ID); err != nil { // not a random one, so that all attempts are equal
		return nil, err
	}
	header := [][2]string{
		{"From", d.From.String()},
		{"To", addresses(d.To)},
		{"Subject", mime.QEncoding.Encode("utf-8", body.Subject)},
		{"Date", time.Unix(0, int64(m.At)).UTC().Format(time.RFC1123Z)},
		{"Message-ID", "<" + m.ID + "@" + domain + ">"},
		{"Auto-Submitted", "auto-generated"}, // prevents out-of-office replies
		{"MIME-Version", "1.0"},
		{"Content-Type", "multipart/alternative; boundary=" + parts.Boundary()},
	}
	if body.Thread != "" {
		header = append(header, [2]string{"References", "<" + body.Thread + "@" + domain + ">"})
	}
	for _, field := range header {
		fmt.Fprintf(&b, "%s: %s\r\n", field[0], field[1])
	}
	b.WriteString("\r\n")
	for _, part := range [][2]string{{"text/plain", body.Text}, {"text/html", body.HTML}} {
		if err := addPart(parts, part[0], part[1]); err != nil {
			return nil, err
		}
	}
	err := parts.Close()
	return b.Bytes(), err
}

func addresses(list []mail.Address) string {
	var all []string
	for i := range list {
		all = append(all, list[i].String())
	}
	return strings.Join(all, ", ")
}

// addPart adds an alternative form of the text to the e-mail. The best alternative must be added last, because mail
// programs show the last one that they understand.
func addPart(to *multipart.Writer, contentType, text string) error {
	w, err := to.CreatePart(textproto.MIMEHeader{
		"Content-Type": {contentType + "; charset=utf-8"}, "Content-Transfer-Encoding": {"quoted-printable"},
	})
	if err != nil {
		return err
	}
	q := quotedprintable.NewWriter(w)
	if _, err := q.Write([]byte(text)); err != nil {
		return err
	}
	return q.Close()
}
