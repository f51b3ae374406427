package node

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"time"
)

func newAPI(creds *credentials) *http.Client {
	config := &tls.Config{RootCAs: creds.roots, Certificates: []tls.Certificate{creds.client}}
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}
}

// usable tells whether a pod would start: the node is Ready, and the service
// account is there without which none is admitted.
func usable(ctx context.Context, api *http.Client) error {
	return errors.Join(nodeReady(ctx, api), get(ctx, api, "/api/v1/namespaces/default/serviceaccounts/default", nil))
}

// poll repeats ask until it returns nil, ctx ends or a component has ended.
func (n *Node) poll(ctx context.Context, what string, ask func(context.Context) error) error {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		for _, c := range n.components {
			if err := c.ended(); err != nil {
				return fmt.Errorf("wait for %s: %w", what, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w: last answer: %w", what, context.Cause(ctx), err)
		case <-tick.C:
		}
	}
}

func nodeReady(ctx context.Context, api *http.Client) error {
	var node struct {
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	if err := get(ctx, api, "/api/v1/nodes/"+Name, &node); err != nil {
		return err
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return nil
		}
		if c.Type == "Ready" {
			return fmt.Errorf("node is not Ready: %s", c.Message)
		}
	}
	return errors.New("node has no Ready condition")
}

func get(ctx context.Context, api *http.Client, path string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+Address+path, nil)
	if err != nil {
		return err
	}
	resp, err := api.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %.200s", path, resp.Status, body)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

// importImages waits for containerd and gives it the archives.
func (n *Node) importImages(ctx context.Context, archives []string) error {
	err := n.poll(ctx, "containerd", func(ctx context.Context) error {
		return exec.CommandContext(ctx, "ctr", "version").Run()
	})
	if err != nil {
		return err
	}
	for _, a := range archives {
		out, err := exec.CommandContext(ctx, "ctr", "--namespace=k8s.io", "images", "import", a).CombinedOutput()
		if err != nil {
			return fmt.Errorf("import %s: %w: %s", a, err, out)
		}
	}
	return nil
}

// Env is what commands next to the node find besides the guest's own.
func (n *Node) Env() []string {
	return []string{"LAB=cluster", "LAB_NFS_SERVER=" + Address, "KUBECONFIG=" + AdminKubeconfig}
}
