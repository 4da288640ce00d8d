package refusal

import (
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"
)

// GRPCStatus returns e as a status, with a RetryInfo if retrying helps. The gRPC library calls this method on errors of
// handlers.
func (e *Error) GRPCStatus() *status.Status {
	st := status.New(reasons[e.Reason].grpc, Text(e.Error()))
	if e.After <= 0 {
		return st
	}
	wait := protoadapt.MessageV1Of(&errdetails.RetryInfo{RetryDelay: durationpb.New(e.After)})
	if detailed, err := st.WithDetails(wait); err == nil {
		return detailed
	}
	return st
}
