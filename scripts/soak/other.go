//go:build !linux

// Command soak needs Linux, whose /proc shows leaked resources.
package main

import "fmt"

func main() { fmt.Println("skipped: soak needs Linux") }
