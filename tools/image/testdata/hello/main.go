// Command hello is a small program to make images of.
package main

func main() { println("hello") }
