// Package archtest contains the tests of the architecture: which package may import which, that translation stays pure, how packages
// and files are named, and that the names in documents exist. It exists so that docs/architecture.md stays in agreement with the
// code. It has no code of its own and must never be imported.
package archtest
