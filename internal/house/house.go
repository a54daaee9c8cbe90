// Package house holds the tests that keep the house in order: who may import
// whom, how long files, functions and packages may grow, and that translation
// stays pure. It exists so that docs/architecture.md cannot drift from the code.
// It has no code of its own and must never be imported.
package house
