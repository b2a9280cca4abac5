//go:build !linux

// Command soak is for Linux, whose /proc tells what a run leaves behind.
package main

import "fmt"

func main() { fmt.Println("skipped: soak needs Linux") }
