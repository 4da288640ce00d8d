package throughput

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// exportMethod is the method of OTLP over gRPC.
const exportMethod = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"

// retryPause is the pause of a sender after a refused request.
const retryPause = 100 * time.Millisecond

// dial returns a connection that sends encoded requests.
func dial(address string) (*grpc.ClientConn, error) {
	return grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
}

// export sends an encoded request, again and again while the server refuses it, and returns the number of retries.
func export(ctx context.Context, conn *grpc.ClientConn, request mem.Buffer) (retries int64, err error) {
	for {
		err := exportOnce(ctx, conn, request)
		if !refused(err) {
			return retries, err
		}
		retries++
		time.Sleep(retryPause)
	}
}

// exportOnce sends an encoded request. The transport may read the request after exportOnce has returned, because a
// server can refuse a request before it has received all of it.
func exportOnce(ctx context.Context, conn *grpc.ClientConn, request mem.Buffer) error {
	var answer []byte
	return conn.Invoke(ctx, exportMethod, request, &answer)
}

// refused reports whether err asks the sender to try again.
func refused(err error) bool {
	code := status.Code(err)
	return code == codes.Unavailable || code == codes.ResourceExhausted
}

// errNotBytes reports a wrong use of rawCodec.
var errNotBytes = errors.New("message is neither mem.Buffer nor *[]byte")

// rawCodec sends and receives encoded messages.
type rawCodec struct{}

// Marshal implements [encoding.CodecV2]. The transport holds a reference to the buffer until it has sent the message.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.(mem.Buffer)
	if !ok {
		return nil, errNotBytes
	}
	b.Ref()
	return mem.BufferSlice{b}, nil
}

// Unmarshal implements [encoding.CodecV2].
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errNotBytes
	}
	*b = data.Materialize()
	return nil
}

// Name implements [encoding.CodecV2].
func (rawCodec) Name() string { return "proto" }

var _ encoding.CodecV2 = rawCodec{}
