package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/nfs-csi/nfs-csi/test/bench/internal/report"
)

// request is one kind of request as the API server counts them.
type request struct {
	verb, resource, code string
}

// requests are how many of each kind there were.
type requests map[request]int

// requests reads the API server's counters.
func (b *bench) requests(ctx context.Context) (requests, error) {
	body, err := b.client.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, err
	}
	label := regexp.MustCompile(`(\w+)="([^"]*)"`)
	counted := requests{}
	lines := bufio.NewScanner(bytes.NewReader(body))
	for lines.Scan() {
		rest, ok := strings.CutPrefix(lines.Text(), "apiserver_request_total{")
		if !ok {
			continue
		}
		labels, value, _ := strings.Cut(rest, "} ")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return nil, fmt.Errorf("counter %q: %w", lines.Text(), err)
		}
		named := map[string]string{}
		for _, pair := range label.FindAllStringSubmatch(labels, -1) {
			named[pair[1]] = pair[2]
		}
		counted[request{verb: named["verb"], resource: named["resource"], code: named["code"]}] += int(n)
	}
	return counted, lines.Err()
}

// since is what came after an earlier reading.
func (r requests) since(before requests) requests {
	delta := requests{}
	for kind, n := range r {
		if n > before[kind] {
			delta[kind] = n - before[kind]
		}
	}
	return delta
}

// sum of those that match.
func (r requests) sum(match func(request) bool) int {
	total := 0
	for kind, n := range r {
		if match(kind) {
			total += n
		}
	}
	return total
}

func read(r request) bool {
	return r.verb == "GET" || r.verb == "LIST"
}

// each prints how many requests of a kind there were for one claim or volume.
func each(name string, count, n int, target float64) {
	value := float64(count) / float64(n)
	report.Line{
		Name: name, Value: fmt.Sprintf("%.2f", value), Floor: "none", Ratio: "none",
		Target: fmt.Sprintf("%.2f", target), OK: value <= target,
	}.Print()
}
