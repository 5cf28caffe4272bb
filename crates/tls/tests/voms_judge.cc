// Prints the VOMS attributes of a proxy file as the library of VOMS verifies them; status 1 if it refuses them.
#include <cstdio>
#include <openssl/pem.h>
#include <voms/voms_api.h>

int main(int, char **arguments) {
    FILE *file = fopen(arguments[1], "r");
    X509 *proxy = PEM_read_X509(file, nullptr, nullptr, nullptr);
    STACK_OF(X509) *chain = sk_X509_new_null();
    while (X509 *certificate = PEM_read_X509(file, nullptr, nullptr, nullptr))
        sk_X509_push(chain, certificate);
    vomsdata data;
    if (!data.Retrieve(proxy, chain, RECURSE_CHAIN)) {
        fprintf(stderr, "%s\n", data.ErrorMessage().c_str());
        return 1;
    }
    for (auto &organization : data.data)
        for (auto &attribute : organization.fqan)
            printf("%s\n", attribute.c_str());
}
