package filter

import (
	"bytes"
	"encoding/binary"
	"net/http"

	"google.golang.org/protobuf/proto"

	"github.com/moongate-dev/moongate/internal/proxy/message"
	"github.com/moongate-dev/moongate/internal/proxy/upstream"
)

// Calls of unary methods by gRPC over HTTP/2 (grpc/grpc, doc/PROTOCOL-HTTP2.md).

var (
	post            = []byte("POST")
	contentTypeName = []byte("content-type")
	grpcContentType = []byte("application/grpc")
)

// grpcPrefix is the length of what stands before a message: a flag, which says that it is compressed, and its length.
const grpcPrefix = 5

// NewGRPC makes a call of the method at path, "/<service>/<method>"; body is that of GRPCBody.
func NewGRPC(backend *upstream.Backend, authority, path, body []byte) *Call {
	c := &Call{Backend: backend, Trailers: true, Request: message.Request{Method: post, Host: authority, Path: path}, Body: body}
	c.Request.Header.Add(contentTypeName, grpcContentType)
	return c
}

// GRPCBody returns a message with what stands before it.
func GRPCBody(msg proto.Message) ([]byte, error) {
	body, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, grpcPrefix, grpcPrefix+proto.Size(msg)), msg)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(body[1:], uint32(len(body)-grpcPrefix))
	return body, nil
}

// GRPCStatus returns the code that the call has ended with, in decimal; "" where the response says none.
func (c *Call) GRPCStatus() string {
	status, ok := c.Trailer.Get("grpc-status")
	if !ok { // of a response without a body
		status, _ = c.Header.Get("grpc-status")
	}
	return string(status)
}

// GRPCMessage returns the message of the response; false is that there is not exactly one, and not compressed.
func (c *Call) GRPCMessage() (msg []byte, ok bool) {
	contentType, _ := c.Header.Get("content-type")
	b := c.Content
	if c.Status != http.StatusOK || !bytes.HasPrefix(contentType, grpcContentType) ||
		len(b) < grpcPrefix || b[0] != 0 || int64(binary.BigEndian.Uint32(b[1:])) != int64(len(b)-grpcPrefix) {
		return nil, false
	}
	return b[grpcPrefix:], true
}
