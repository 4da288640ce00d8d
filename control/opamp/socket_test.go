package opamp_test

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/open-telemetry/opamp-go/protobufs"
	"google.golang.org/protobuf/proto"

	"github.com/sibyl-trace/sibyl/control"
	"github.com/sibyl-trace/sibyl/control/opamp"
)

// dial opens a WebSocket without the library and offers compression.
func dial(t *testing.T, w *harness) net.Conn {
	t.Helper()
	address, _, _ := strings.Cut(w.url, "/")
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer secret\r\n"+
		"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
		"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
		opamp.Path, address)
	answer, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close() // the body is empty
	if answer.StatusCode != http.StatusSwitchingProtocols || answer.Header.Get("Sec-WebSocket-Extensions") != "" {
		t.Fatal(answer.Status, answer.Header)
	}
	return c
}

// begin sends the header of a binary message with the given length and a zero mask.
func begin(t *testing.T, c net.Conn, bytes uint64) {
	t.Helper()
	if _, err := c.Write(append(binary.BigEndian.AppendUint64([]byte{0x82, 0xff}, bytes), 0, 0, 0, 0)); err != nil {
		t.Fatal(err)
	}
}

// send sends m in one binary message.
func send(t *testing.T, c net.Conn, m *protobufs.AgentToServer) {
	t.Helper()
	body, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	begin(t, c, uint64(1+len(body)))
	if _, err := c.Write(append([]byte{0}, body...)); err != nil {
		t.Fatal(err)
	}
}

func hello(id byte) *protobufs.AgentToServer {
	return &protobufs.AgentToServer{
		InstanceUid: append(make([]byte, 15), id), EffectiveConfig: &protobufs.EffectiveConfig{},
		AgentDescription: &protobufs.AgentDescription{IdentifyingAttributes: []*protobufs.KeyValue{
			attribute("service.name", "shop"), attribute("host.name", "a\x1b[31m\n"),
		}},
	}
}

// The server stops reading a message that exceeds MaxMessage, and continues to serve other connections.
func TestTooLarge(t *testing.T) {
	w := newHarness(t, 30*time.Second)
	c := dial(t, w)
	begin(t, c, 1<<40)
	chunk, sent := make([]byte, 1<<20), 0
	for ; sent < 256; sent++ {
		if _, err := c.Write(chunk); err != nil {
			break
		}
	}
	if sent == 256 {
		t.Error("the server read 256 MiB of one message")
	}
	send(t, dial(t, w), hello(1))
	until(t, "a small message on another connection is not processed", func() bool {
		return len(w.plane.Agents()) == 1
	})
}

// The limit applies to each message, not to a connection.
func TestManyMessages(t *testing.T) {
	w := newHarness(t, 30*time.Second)
	c := dial(t, w)
	go func() { _, _ = io.Copy(io.Discard, c) }() // ends with the connection
	garbage := make([]byte, 40<<20)
	for range 3 {
		begin(t, c, uint64(len(garbage)))
		if _, err := c.Write(garbage); err != nil {
			t.Fatal(err)
		}
	}
	send(t, c, hello(1))
	until(t, "a message after large ones is not processed", func() bool { return len(w.plane.Agents()) == 1 })
}

// An agent that changes its ID remains one agent, and receives plans.
func TestChangedID(t *testing.T) {
	w := newHarness(t, 30*time.Second)
	c := dial(t, w)
	go func() { _, _ = io.Copy(io.Discard, c) }() // ends with the connection
	for id := range byte(20) {
		send(t, c, hello(id))
	}
	until(t, "there is not exactly one agent that waits for plans", func() bool {
		all := w.plane.Agents()
		return len(all) == 1 && all[0].ID == fmt.Sprintf("%032x", 19) && w.plane.Summary().Polls == 1
	})
}

// Texts of agents that are shown to people are printable and bounded.
func TestPrintable(t *testing.T) {
	w := newHarness(t, 30*time.Second)
	c := dial(t, w)
	m := hello(1)
	m.RemoteConfigStatus = &protobufs.RemoteConfigStatus{
		Status:       protobufs.RemoteConfigStatuses_RemoteConfigStatuses_FAILED,
		ErrorMessage: "\x1b[31mred\n" + strings.Repeat("x", 10_000),
	}
	send(t, c, m)
	var all []control.Agent
	until(t, "the agent is not known", func() bool {
		all = w.plane.Agents()
		return len(all) == 1 && all[0].Problem != ""
	})
	if p := all[0].Problem; !strings.HasPrefix(p, "the agent reports: ?[31mred?x") || len(p) > 2000 {
		t.Errorf("%.40q…, %d bytes", p, len(p))
	}
	if h := all[0].Resource["host.name"]; h != "a?[31m?" {
		t.Errorf("%q", h)
	}
}
