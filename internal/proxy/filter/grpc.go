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

// grpcPrefix is the length of the prefix of a message: the compressed flag and the length.
const grpcPrefix = 5

// NewGRPC returns a call of the method at path, "/<service>/<method>". body is made by GRPCBody.
func NewGRPC(backend *upstream.Backend, authority, path, body []byte) *Call {
	c := &Call{Backend: backend, Trailers: true, Request: message.Request{Method: post, Host: authority, Path: path}, Body: body}
	c.Request.Header.Add(contentTypeName, grpcContentType)
	return c
}

// GRPCBody returns a message with its prefix.
func GRPCBody(msg proto.Message) ([]byte, error) {
	body, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, grpcPrefix, grpcPrefix+proto.Size(msg)), msg)
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint32(body[1:], uint32(len(body)-grpcPrefix))
	return body, nil
}

// GRPCStatus returns the code of the call in decimal, "" if the response has none.
func (c *Call) GRPCStatus() string {
	status, ok := c.Trailer.Get("grpc-status")
	if !ok { // in a response without a body
		status, _ = c.Header.Get("grpc-status")
	}
	return string(status)
}

// GRPCMessage returns the message of the response. It returns false unless there is exactly one, which is not
// compressed.
func (c *Call) GRPCMessage() (msg []byte, ok bool) {
	contentType, _ := c.Header.Get("content-type")
	b := c.Content
	if c.Status != http.StatusOK || !bytes.HasPrefix(contentType, grpcContentType) ||
		len(b) < grpcPrefix || b[0] != 0 || int64(binary.BigEndian.Uint32(b[1:])) != int64(len(b)-grpcPrefix) {
		return nil, false
	}
	return b[grpcPrefix:], true
}
