package receiver

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"

	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcencoding "google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // so that gRPC admits requests with this encoding
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/sibyl-trace/sibyl/internal/refusal"
)

// Sizes of buffers and windows, measured with BenchmarkGRPC.
const (
	readBuffer   = 64 << 10
	streamWindow = 256 << 10 // number of bytes that a request may send before they are read
	connWindow   = 1 << 20
	pieceSize    = 64 << 10 // maximum number of bytes of a message that are read at once
	smallMessage = 1 << 10  // maximum size of messages that gRPC itself decodes; Export reads its messages raw
)

func (s *Server) newGRPC(options ...grpc.ServerOption) *grpc.Server {
	options = append(options,
		grpc.ForceServerCodecV2(codec{grpcencoding.GetCodecV2(proto.Name)}),
		grpc.InTapHandle(cancelable),
		grpc.ConnectionTimeout(min(headerTimeout, s.opts.ReadTimeout)),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.MaxRecvMsgSize(smallMessage),
		grpc.MaxConcurrentStreams(streamsPerConn),
		grpc.ReadBufferSize(readBuffer),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingInterval, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: s.opts.IdleTimeout, Time: time.Minute, Timeout: answerTimeout,
		}),
	)
	server := grpc.NewServer(options...)
	// Export is unary, but only stream handlers can read a message piece by piece.
	server.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.trace.v1.TraceService",
		HandlerType: (*any)(nil),
		Streams:     []grpc.StreamDesc{{StreamName: "Export", Handler: s.export}},
	}, nil)
	return server
}

// export answers one call of Export.
func (s *Server) export(_ any, stream grpc.ServerStream) error {
	began := time.Now()
	event := Event{Transport: GRPC}
	rejected, err := s.exportGRPC(stream.Context(), &event)
	if err == nil {
		event.Rejected = rejected.Spans
		err = stream.SendMsg(reply(rejected.protobuf()))
	}
	if refused, ok := errors.AsType[*refusal.Error](err); ok {
		event.Refused = refused.Reason
		err = refused.GRPCStatus().Err()
	}
	event.Duration = time.Since(began)
	s.opts.Observe(event)
	return err
}

// exportGRPC processes a call and returns the rejected spans, or a refusal. It sets event.Bytes.
func (s *Server) exportGRPC(ctx context.Context, event *Event) (Rejected, error) {
	header, _ := metadata.FromIncomingContext(ctx)
	client, ok := peer.FromContext(ctx)
	if !ok {
		client = &peer.Peer{Addr: &net.TCPAddr{}}
	}
	var connection *tls.ConnectionState
	if info, ok := client.AuthInfo.(credentials.TLSInfo); ok {
		connection = &info.State
	}
	to, err := s.destination(senderOf(
		first(header.Get("authorization")), first(header.Get(scopeHeader)), client.Addr.String(), connection))
	if err != nil {
		return Rejected{}, err
	}
	if len(header) > maxHeaders {
		return Rejected{}, refuse(refusal.TooManyHeaders, "too many headers")
	}
	p, err := to.enter(func() { cancel(ctx, errCutOff) })
	if err != nil {
		return Rejected{}, err
	}
	defer p.leave()
	b, err := to.readGRPC(ctx, p)
	if err != nil {
		return Rejected{}, to.unread(ctx, err)
	}
	defer b.free()
	event.Bytes = len(b.bytes())
	return to.take(ctx, client.LocalAddr, b.bytes(), Protobuf)
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}

// readGRPC returns the single message of a call, uncompressed. The caller must free the result.
func (d *Destination) readGRPC(ctx context.Context, p *place) (*body, error) {
	defer time.AfterFunc(d.opts.ReadTimeout, func() { cancel(ctx, errSlow) }).Stop()
	stream := rawStreamOf(ctx)
	size, compressed, err := readPrefix(stream)
	if err != nil {
		return nil, err
	}
	enc := identity
	if compressed {
		var known bool
		if enc, known = encodingNames[stream.RecvCompress()]; !known || enc == identity {
			return nil, refuse(refusal.UnknownEncoding, "the message has an unknown compression")
		}
	}
	return d.bodies.read(ctx, p, &message{stream: stream, left: size}, size, enc)
}

// readPrefix reads the prefix of a message, and returns the size of the message in bytes. compressed reports whether
// the message is compressed.
func readPrefix(stream rawStream) (size int64, compressed bool, err error) {
	var prefix [5]byte
	if err := stream.ReadMessageHeader(prefix[:]); err != nil {
		return 0, false, err
	}
	if prefix[0] > 1 {
		return 0, false, refuse(refusal.Malformed, "the message has unknown flags")
	}
	return int64(binary.BigEndian.Uint32(prefix[1:])), prefix[0] == 1, nil
}

// rawStream is a call whose message can be read piece by piece, while still compressed. The usual method, RecvMsg,
// reads and uncompresses a whole message before its bytes can be counted, so that requests on many connections could
// exhaust the memory.
//
// The methods belong to the type behind grpc.ServerTransportStream, not to the interface, so a new version of gRPC may
// lack them. Every test of this package would then fail.
type rawStream interface {
	ReadMessageHeader(prefix []byte) error // io.EOF if there is no message
	Read(n int) (mem.BufferSlice, error)   // returns exactly n bytes; waits for them until the context is done
	RecvCompress() string                  // value of the header grpc-encoding
}

func rawStreamOf(ctx context.Context) rawStream {
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(rawStream)
	if !ok {
		panic("this version of gRPC cannot read messages piece by piece")
	}
	return stream
}

// message reads the bytes of a message, compressed or not.
type message struct {
	stream rawStream
	left   int64
}

// Read reads at most pieceSize bytes, because gRPC lets the sender send as many bytes in advance as a Read requests.
func (m *message) Read(p []byte) (int, error) {
	if m.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), pieceSize, int(m.left))
	data, err := m.stream.Read(n)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, err
	}
	data.CopyTo(p)
	data.Free()
	m.left -= int64(n)
	return n, nil
}

// cancelKey is the context key of the function that cancels a call.
type cancelKey struct{}

// cancelable makes calls cancelable, because nothing else ends a Read that waits for a sender.
func cancelable(ctx context.Context, _ *tap.Info) (context.Context, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	return context.WithValue(ctx, cancelKey{}, cancel), nil
}

// cancel cancels the call of ctx with the given cause.
func cancel(ctx context.Context, cause error) {
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelCauseFunc); ok {
		cancel(cause)
	}
}

// reply is an encoded response.
type reply []byte

// codec sends replies unchanged.
type codec struct{ grpcencoding.CodecV2 }

// Marshal returns the bytes of v, which is a reply.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(reply)
	if !ok {
		return nil, status.Error(codes.Internal, "not a reply")
	}
	return mem.BufferSlice{mem.SliceBuffer(r)}, nil
}

// zstdCompressor makes gRPC admit requests compressed with zstd. The type bodies uncompresses them, not gRPC.
type zstdCompressor struct{}

func init() {
	if grpcencoding.GetCompressor("zstd") == nil {
		grpcencoding.RegisterCompressor(zstdCompressor{})
	}
}

// Name returns the value of the header grpc-encoding.
func (zstdCompressor) Name() string { return "zstd" }

// Compress returns a writer that compresses to w.
func (zstdCompressor) Compress(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
}

// Decompress returns a reader for the decompressed data.
func (zstdCompressor) Decompress(r io.Reader) (io.Reader, error) {
	return newZstd(r)
}
