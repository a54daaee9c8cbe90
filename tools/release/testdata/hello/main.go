// Command hello stands for the product where a test does not look into it.
package main

func main() {}
