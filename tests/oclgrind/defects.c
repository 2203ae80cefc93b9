/* One kernel with one defect, which Oclgrind has to report: defects NAME. "none" has none.
 *
 *     outside             reads behind a buffer
 *     beyond_a_variable   stores behind a private array
 *     race                two work-groups store to one place
 *     undefined           decides by a variable that was never assigned
 *     api                 asks the device for something that OpenCL 1.2 does not know */
#include <CL/cl.h>

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *body;
} defects[] = {
    {"none", "memory[i] += 1;"},
    {"api", "memory[i] += 1;"},
    {"outside", "memory[i] = memory[i + 4];"},
    {"beyond_a_variable", "volatile uint own[4]; own[i + 1] = i; memory[i] = own[1];"},
    {"race", "memory[0] = i;"},
    {"undefined", "volatile uint own[4]; if (own[i] > 7) memory[i] = 1;"},
};

static int check(cl_int code, const char* call) {
    if (code != CL_SUCCESS) fprintf(stdout, "%s: %d\n", call, code);
    return code == CL_SUCCESS;
}

static int run(const char* source, int asks) {
    cl_platform_id platform = NULL;
    cl_device_id device = NULL;
    cl_int code = CL_SUCCESS;
    const size_t groups = 4, one = 1;
    const cl_uint zeros[4] = {0, 0, 0, 0};
    if (!check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs")) return 1;
    if (!check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs")) return 1;
    if (asks) clGetDeviceInfo(device, 0x105C, 0, NULL, NULL); /* CL_DEVICE_MAX_NUM_SUB_GROUPS of OpenCL 2.1 */
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    if (!check(code, "clCreateContext")) return 1;
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    cl_mem memory = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof zeros, NULL, &code);
    if (!check(code, "clCreateBuffer")) return 1;
    check(clEnqueueWriteBuffer(queue, memory, CL_TRUE, 0, sizeof zeros, zeros, 0, NULL, NULL), "clEnqueueWriteBuffer");
    cl_program program = clCreateProgramWithSource(context, 1, &source, NULL, &code);
    if (!check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram")) return 1;
    cl_kernel kernel = clCreateKernel(program, "defect", &code);
    if (!check(code, "clCreateKernel")) return 1;
    check(clSetKernelArg(kernel, 0, sizeof memory, &memory), "clSetKernelArg");
    code = clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &groups, &one, 0, NULL, NULL);
    check(code, "clEnqueueNDRangeKernel");
    const int is_well = check(clFinish(queue), "clFinish") && code == CL_SUCCESS;
    clReleaseKernel(kernel);
    clReleaseProgram(program);
    clReleaseMemObject(memory);
    clReleaseCommandQueue(queue);
    clReleaseContext(context);
    return !is_well;
}

int main(int argc, char** argv) {
    char source[500];
    for (size_t i = 0; argc == 2 && i < sizeof defects / sizeof defects[0]; ++i) {
        if (strcmp(argv[1], defects[i].name) != 0) continue;
        snprintf(source, sizeof source, "kernel void defect(global uint *memory) { uint i = get_group_id(0); %s }",
                 defects[i].body);
        return run(source, strcmp(argv[1], "api") == 0);
    }
    fprintf(stdout, "usage: defects NAME\n");
    return 2;
}
