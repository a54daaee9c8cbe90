//go:build !race

package proxy

// raceDetector tells that everything takes many times as long.
const raceDetector = false
