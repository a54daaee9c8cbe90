// Package archtest holds the tests of the architecture: which package may import which, that translation stays pure, how
// packages and files are named, and that the documents name what is there. It exists so that docs/architecture.md cannot
// drift from the code. It has no code of its own and must never be imported.
package archtest
