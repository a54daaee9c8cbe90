// Package splice moves bytes from one socket to another without copying them: the kernel moves its pages through a pipe
// (splice(2)). It exists because a tunnel without TLS carries more than one read takes, and data that a slow reader has
// not taken waits in the pipe, not in the gateway's memory. Response bodies are copied, since the first read usually
// takes all of them.
//
// It only knows sockets and pipes, and imports the standard library and x/sys.
package splice

// Worth is the number of bytes from which splicing is worth its two additional system calls.
const Worth = 24 << 10

// Most is how many bytes a pipe is filled with at once. If much passes through a tunnel, its sockets hold as much, and
// each part costs two system calls and wakes the peer.
const Most = 256 << 10

// smallPipe is the default capacity of a pipe, which is used if there are too many large ones.
const smallPipe = 64 << 10

// MostPipes is the largest number of pipes, whatever Limit allows. Their pages are less than three quarters of those
// that an unprivileged user may have in pipes, see mostLargePipes. If no more are available, bytes are copied, and what
// a sink has not taken waits in a buffer.
const MostPipes = 512
