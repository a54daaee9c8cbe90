// Package splice moves bytes from one socket to another without copying them: the kernel hands
// over its pages by way of a pipe (splice(2)). It exists because a tunnel in the clear carries more than one read takes, and what a slow
// reader has not taken waits in the pipe, not in the gateway's memory. Response bodies, of which the first read mostly takes all, are copied.
//
// It knows of sockets and pipes only and imports the standard library and x/sys.
package splice

// Worth is from how many bytes on splicing is worth its two more system calls.
const Worth = 24 << 10

// Most is how many bytes a pipe is filled with at once. Where much comes through a tunnel its sockets hold as much, and each part costs two system
// calls and wakes the peer.
const Most = 256 << 10

// smallPipe is what a pipe takes without being asked to, and that is used where there are too many large ones.
const smallPipe = 64 << 10

// MostPipes is how many pipes there are at a time, whatever Limit allows. Their pages are less than three quarters of those that a user without privileges may
// have in pipes, see mostLargePipes. Where there are no more, bytes are copied, and what a sink has not taken waits in a buffer.
const MostPipes = 512
