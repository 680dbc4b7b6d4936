package redistest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// Certificate is what a server on 127.0.0.1 shows its clients, made for one test.
type Certificate struct {
	// CertFile and KeyFile are in PEM. CertFile is what clients trust.
	CertFile, KeyFile string
}

// NewCertificate makes one.
func NewCertificate(t testing.TB) Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("redistest: certificate: %v", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "redistest"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatalf("redistest: certificate: %v", err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("redistest: certificate: %v", err)
	}
	dir := t.TempDir()
	c := Certificate{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	for file, block := range map[string]*pem.Block{
		c.CertFile: {Type: "CERTIFICATE", Bytes: cert},
		c.KeyFile:  {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatalf("redistest: certificate: %v", err)
		}
	}
	return c
}

// Trust returns what a client needs that connects to a server with the certificate in a file.
func Trust(certFile string) (*tls.Config, error) {
	cert, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, nil
}

// Secure is a redis-server that its clients reach by TLS.
type Secure struct {
	*Server // its own address takes no TLS
	// TLSAddr is where it takes TLS, and nothing else.
	TLSAddr string
	// Config is what a client needs, and CertFile the certificate that it trusts, for one in another process.
	Config   *tls.Config
	CertFile string
}

// TLS starts a server like [Single] with an address for TLS besides.
func TLS(t testing.TB, args ...string) Secure {
	t.Helper()
	cert := NewCertificate(t)
	config, err := Trust(cert.CertFile)
	if err != nil {
		t.Fatalf("redistest: certificate: %v", err)
	}
	// A server that is no member of a Cluster has no use for the port of the bus.
	s := startServer(t, func(p ports) ([]string, error) {
		return append(append(baseArgs(p), "--tls-port", strconv.Itoa(p.bus), "--tls-auth-clients", "no",
			"--tls-cert-file", cert.CertFile, "--tls-key-file", cert.KeyFile, "--tls-ca-cert-file", cert.CertFile), args...), nil
	})
	return Secure{s, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports.bus)), config, cert.CertFile}
}
