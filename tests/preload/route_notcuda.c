/* No driver and no runtime: a library whose functions happen to have these names. */
int cuMemAlloc_v2(void) { return 12345; }
int cuGetProcAddress_v2(void) { return 12346; }
int cudaMalloc(void) { return 12347; }
